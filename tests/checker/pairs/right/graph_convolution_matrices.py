"""Graph convolution as a product of five matrices, the normalisation two diagonal ones."""

import torch

FORMULA = "graph_convolution"


def gcn(A, X, W):
    hat = A + torch.eye(len(A)).to(A)
    root = torch.diag(hat.sum(1).rsqrt())
    return torch.linalg.multi_dot([root, hat, root, X, W]).clamp(min=0)
