"""Where ANCL's network is between the old and the auxiliary one: distances, CKA, landscapes."""
