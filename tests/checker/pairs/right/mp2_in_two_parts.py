"""The energy in its two spin parts, looped over pairs of occupied orbitals."""

FORMULA = "mp2_energy"


def mp2_energy(v, e_o, e_v):
    opposite, same = 0.0, 0.0
    virtual = e_v[:, None] + e_v[None, :]
    for i in range(len(e_o)):
        for j in range(len(e_o)):
            pair = v[i, :, j, :]
            weighted = pair / (e_o[i] + e_o[j] - virtual)
            opposite = opposite + (weighted * pair).sum()
            same = same + (weighted * (pair - pair.T)).sum()
    return opposite + same
