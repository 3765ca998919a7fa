"""What all tests share: one thread, and hypothesis without clocks or luck."""

import os

from hypothesis import settings

# One thread, so that runs are alike on any machine; set before torch is first imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# The same examples in every run; `--hypothesis-profile=explore` looks for new ones.
settings.register_profile("house", derandomize=True, deadline=None, database=None)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile("house")
