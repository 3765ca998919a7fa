"""A cyclic convolution by Fourier transforms."""

import torch

FORMULA = """
    x[B, N]; w[N]
    index i < N
    y[b,i] = sum[k](x[b,(i - k) % N] * w[k])
"""


def cyclic_convolution(x, w):
    spectrum = torch.fft.rfft(x) * torch.fft.rfft(w)
    return torch.fft.irfft(spectrum, n=x.shape[-1])
