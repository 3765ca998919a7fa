"""Every row of the lifter's table by its examples: what is written down is what torch computes."""

import pytest
from lifting import Example, draw_sizes, find_gap, is_for_every_size, lift_example

from derive.frontend.torch.ops import OPS

EXAMPLES = [example for row in OPS for example in row.examples]


@pytest.mark.parametrize("text", EXAMPLES)
def test_an_example_is_written_down_as_torch_computes_it(text):
    torch_default = Example(text)
    declared, function = torch_default.find_system(), torch_default.find_function()
    first, *others = draw_sizes(declared, 3)
    lifted = lift_example(function, declared, first)
    assert find_gap(function, declared, first, lifted) < 1e-9
    assert lifted.every_size or not is_for_every_size(text)
    if lifted.every_size:
        for number, sizes in enumerate(others):
            if 1 not in sizes.values():
                assert find_gap(function, declared, sizes, lifted, number + 1) < 1e-9
