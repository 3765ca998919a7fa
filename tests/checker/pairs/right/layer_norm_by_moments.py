"""The variance as the mean of squares less the square of the mean."""

FORMULA = "layer_norm"


def layer_norm(x, gamma, beta, eps=1e-5):
    mean = x.mean(dim=-1, keepdim=True)
    mean_of_squares = x.pow(2).mean(dim=-1, keepdim=True)
    var = mean_of_squares - mean.pow(2)
    return gamma * (x - mean) * (var + eps).rsqrt() + beta
