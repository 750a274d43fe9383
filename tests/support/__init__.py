"""What the tests are made with: programs, faults, power cuts, processes, campaigns."""
