"""Start, watch and stop the servers that configurations of NeMo Gym name (`manage.py run`)."""
