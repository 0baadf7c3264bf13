"""The campaign: the package attacked in every way that it promises to withstand, at random moments.

    python -m tests.faults.campaign --minutes 30
    python -m tests.faults.campaign --attacks kills stops --trials 20 --seed 3

One module is one attack, and knows nothing of how the package defends itself. Each trial is drawn from the campaign's
seed, its attack's name and its number; it has a time limit, runs in a folder of its own, and leaves nothing behind.
"""
