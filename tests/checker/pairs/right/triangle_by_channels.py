"""The channels go to the front, so that the triangle product is a batched matrix product."""

FORMULA = "triangle_multiplication"


def triangle_outgoing(a, b, g):
    a, b = a.permute(2, 0, 1), b.permute(2, 1, 0)
    return (a @ b).permute(1, 2, 0) * g
