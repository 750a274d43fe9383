"""What runs between compiled calls, for users to write.

Owns the interface (`hook`, which states the order of calls), what a hook sees (`context`), the list
that calls them (`hook_list`), and the stock hooks, a file each. Promises that hooks are called in
the order given, each at the steps it asked for. Refuses to know checkpoints, data or the trainer.
"""
