"""One program for each contender: started by the runner with a task, it lands the records and reports what it cost."""
