"""``python -m ancl``: the command where its script is not on the path."""

from ancl.cli import start

if __name__ == "__main__":
    start()
