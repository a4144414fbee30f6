"""The scripts here are run, not imported."""

collect_ignore = ["run.py", "seeds.py", "structure.py"]
