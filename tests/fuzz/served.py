"""`manage.py serve` that calls nothing but loopback, whatever address a generated request may register."""

import ipaddress
import sys

from django.core.management import execute_from_command_line

from apps.gym.calls import outbound

if __name__ == "__main__":
    outbound._CLOSED_V4 = (ipaddress.IPv4Network("0.0.0.0/0"),)
    outbound._OPEN_V6 = ipaddress.IPv6Network("::1/128")
    execute_from_command_line(sys.argv)
