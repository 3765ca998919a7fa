"""The plan: which steps are computed, in which order, with which calls of torch.

A plan is made for sizes: those of --sizes, else the formula's typical ones, else 64. Rules rewrite
the formula. The cost of each form is estimated by a model of a server core: operations, bytes,
calls, and the copies that torch makes of operands whose indices it cannot merge. The cheapest form
is taken. The docstring of the file names the rules that were used and the cost.

What is chosen
    contractions of two operands, in the order that opt_einsum finds
    the order of storage of each tensor
    loops over blocks of an index, where a tensor does not fit the cache; `block` is a keyword
    one call of torch for several steps: scaled_dot_product_attention, layer_norm, cdist, ..
    one sort for counts, sums and extremes over [x[j] <= t[i]]
    Fourier transforms for sums over waves, and for convolutions with many offsets
    slices, pads and windows for positions that are affine in the indices, without a copy

Options of build, show and bench
    --sizes S=4096,..     sizes to plan for
    --memory 256MiB       intermediates stay within it, forward and not compiled, or build refuses
    --no-cells            no calls that stand for several steps: some lack second derivatives
    --exact               no rule that loses digits, such as (x - y)**2 = x**2 - 2*x*y + y**2
Options of build and show
    --gradient X,Y        the formula of the gradients instead
Options of build
    --no-einsum           matmul and permute, for torch.onnx.export
    --backward            a torch.autograd.Function, planned from the formula's gradients: it stores
                          less and computes again; the file says where autograd does better

How a file is judged. It is executed and compared with direct loops over the formula, at pairwise
distinct sizes and one of size 1, with blocks of one, two and three positions. Where prime fields
have all its functions, it is also compared there, exactly. A file that fails is not written.

What a generated function promises. It takes any sizes and any strides. It raises one ValueError for
shapes that do not fit, and with validate=True for integers out of range. It works under autograd,
torch.compile, torch.export, torch.func and autocast, and on meta tensors. The loop of a recurrence
is compiled for each length. Forward derivatives need --no-cells and no --backward.
"""
