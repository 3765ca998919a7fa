"""Plans print themselves: steps, einsum strings, costs as polynomials."""

import derive


def test_a_plan_prints_its_steps_and_costs():
    plan = derive.build(
        "x[I,J]; w[J,K]; y[i,k] = sum[j](x[i,j] * w[j,k])", dict(I=2, J=3, K=4)
    ).plan
    assert str(plan) == (
        "formula at I=2 J=3 K=4: y\n"
        "    y[I, K]    ij,jk->ik    48 flops\n"
        "flops: 2*I*J*K = 48\n"
        "peak elements: I*K = 8"
    )
    assert repr(plan) == "<Plan formula at I=2 J=3 K=4: y>"
    assert str(plan.flops) == "2*I*J*K"


def test_a_built_file_prints_its_equations_and_its_plan():
    built = derive.build("x[N]; y[i] = x[i] + 1", dict(N=5))
    assert str(built).startswith("x[N]\ny[i] = x[i] + 1\n\nformula at N=5: y\n")
    assert repr(built) == "<Built formula at N=5: y>"
