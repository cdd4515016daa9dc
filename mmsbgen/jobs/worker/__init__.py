"""Workers: take jobs from the queue of a database and run each in its own child process."""
