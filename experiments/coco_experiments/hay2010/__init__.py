"""Hay, Rastogi, Miklau and Suciu 2010: boosting the accuracy of histograms through consistency."""
