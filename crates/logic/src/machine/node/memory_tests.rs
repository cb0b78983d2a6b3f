//! Memory alone: requests in, orders out.

use super::*;
