"""The exchange part comes without its factor one half."""

import torch

FORMULA = "fock_matrix"
EDIT = ("scale", "1/2")
LINE = "return h"


def fock_matrix(h, D, eri):
    coulomb = torch.tensordot(eri, D, dims=([2, 3], [0, 1]))
    exchange = torch.tensordot(eri, D, dims=([1, 3], [0, 1]))
    return h + coulomb - exchange
