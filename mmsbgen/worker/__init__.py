"""Workers: they take jobs from the queue of a database and do each in a child process of their own."""
