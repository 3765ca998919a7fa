"""The squares are summed, not averaged, under the root."""

FORMULA = "rms_norm"
EDIT = ("mean over d, not sum",)
LINE = "power = "


def rms_norm(x, g, eps=1e-6):
    power = x.pow(2).sum(-1, keepdim=True)
    return x / (power + eps).sqrt() * g
