"""From a log and from facts to causes: symptoms found, their fields understood, weighed against one another. Pure."""
