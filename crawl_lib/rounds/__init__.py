"""What an iteration begins and ends with, on the DFS alone: start and commit, which nodes take part, status."""
