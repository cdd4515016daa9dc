"""The language of programs: the keywords of its dialects, and the format and the digest of rendered source."""
