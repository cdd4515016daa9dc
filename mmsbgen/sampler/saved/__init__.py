"""Files of runs: checkpoints, results, and the chains of estimators."""
