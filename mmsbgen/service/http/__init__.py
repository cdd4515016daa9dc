"""HTTP: settings, limits, tokens, uploads and error answers."""
