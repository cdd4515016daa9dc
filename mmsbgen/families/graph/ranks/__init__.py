"""PageRank, and arcs in an order that reads its values from local memory."""
