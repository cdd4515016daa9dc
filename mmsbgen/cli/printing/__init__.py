"""What commands print: tables, records and summaries."""
