"""The ground floor: what every room stands on. It knows nothing of networks or posteriors."""
