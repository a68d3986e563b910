"""One file a section of the report; each makes it from the material, and says in words where there
is nothing to show."""
