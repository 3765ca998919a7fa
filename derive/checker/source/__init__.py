"""The code that is judged: read from files, notebooks and pages, loaded, its parts found."""
