"""What a machine function does with its registers: control flow, loops, lane liveness, pressure."""
