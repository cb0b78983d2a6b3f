//! The node of Aktis: the shell around its machine, worker processes, sockets.
