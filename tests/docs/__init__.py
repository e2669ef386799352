"""The documentation: its pages are true, their code blocks run, its site builds."""
