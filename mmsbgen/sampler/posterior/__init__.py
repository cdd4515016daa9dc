"""What samples of the posterior tell: draws, R-hat and effective sample sizes, moments, intervals."""
