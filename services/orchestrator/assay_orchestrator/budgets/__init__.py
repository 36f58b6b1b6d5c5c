"""What runs may spend of their team's money and tokens: reserved before a call, settled after it."""
