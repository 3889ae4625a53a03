"""The leaderboard: results that are kept, and what is made of them. Works without torch."""
