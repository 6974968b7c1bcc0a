"""What ``verilocc audit`` answers, as text, SARIF 2.1.0 and HTML."""
