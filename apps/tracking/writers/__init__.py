"""Programs that use the packages of trackers. They run in a process of their own and import nothing of GymWeb.

`client_processes.py` starts them with the Python of GYMWEB_TRACKING_PYTHON, which has these packages.
"""
