"""Commands of matrix factorisation."""
