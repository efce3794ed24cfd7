"""Figure 4 of the paper, on JSB chorales, by the cells that are on record.

    python docs/pictures/iterations.py

makes `figure_4a.png` (validation and training by epoch) and `figure_4b.png` (how far each iteration
is below the prior, on the test part) of the files in `results/`, as `varfilter reproduce figure-4
--from-results results` does.
"""

from drawing import HERE, parser, save_both

from varfilter.plots.studies import iteration_curves, iteration_gains
from varfilter.report.iteration_study import read_iterations

RESULTS = HERE.parent.parent / "results"


def main():
    given = parser(__doc__).parse_args()
    cells = read_iterations(RESULTS)
    save_both(lambda width: iteration_curves(cells, width), given.out, "figure_4a.png")
    save_both(lambda width: iteration_gains(cells, width), given.out, "figure_4b.png")


if __name__ == "__main__":
    main()
