"""Run and score attempts, and read and write their files. Plain Python: no Django, no database."""
