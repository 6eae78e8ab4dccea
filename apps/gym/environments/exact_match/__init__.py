"""One turn: the answer is compared with the expected one."""
