"""Coulomb and exchange parts as matrix times vector on reshaped integrals."""

FORMULA = "fock_matrix"


def fock(h, D, eri):
    n = h.shape[0]
    flat = D.reshape(-1)
    coulomb = (eri.reshape(n * n, n * n) @ flat).view(n, n)
    exchange = (eri.permute(0, 2, 1, 3).reshape(n * n, n * n) @ flat).view(n, n)
    return h + coulomb - exchange / 2
