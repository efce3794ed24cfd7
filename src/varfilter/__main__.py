"""`python -m varfilter` is `varfilter`."""

from varfilter.cli import main

if __name__ == "__main__":
    main()
