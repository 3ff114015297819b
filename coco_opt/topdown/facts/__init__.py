"""What facts imply, and whether any whole table meets them: from public values alone, before and after the noise."""
