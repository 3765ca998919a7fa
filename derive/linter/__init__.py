"""The linter: einsum strings of a source tree that look wrong, found without running it.

    derive lint PATH...     einsums of torch, numpy, jax, opt_einsum and einops
    model.py:6:31: DE101 warning: w: the repeated d takes the diagonal of dd

    --list                  the codes; --explain CODE prints a chapter about one
    --select, --ignore      choose codes; DE102 and DE103 are off unless selected, or with --all
    --json                  for machines
    # derive: ignore[DE103] silences a code on its line

The exit code is 1 where a warning or an error is found.

Modules
    lint        files, findings at their places, the comments that silence them
    scopes      values of names, places of the characters of a text
    calls       every einsum of a module, and how a string may be written
    rules       all rules with their chapters, and how a person chooses
"""
