"""The direct term of the energy lacks its factor 2."""

FORMULA = "mp2_energy"
EDIT = ("scale 2 * v", "by 2")
LINE = "t = "


def mp2(v, e_o, e_v):
    d = e_o[:, None, None, None] - e_v[None, :, None, None]
    d = d + e_o[None, None, :, None] - e_v[None, None, None, :]
    t = v * (v - v.permute(0, 3, 2, 1))
    return (t / d).sum()
