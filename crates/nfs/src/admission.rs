//! Which connection ends so that another one can be had.
//!
//! A client can open connections cheaply, and keep all of them in use. So they are shared fairly:
//! at the limit, the client with the most loses one to a client that has fewer. Within a client
//! only use counts, and calls that do nothing are none.

use std::collections::HashMap;

use crate::client::Client;
use crate::limits;

/// A connection that there is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// Its number.
    pub(crate) number: usize,
    pub(crate) client: Client,
    /// Milliseconds since its last request.
    pub(crate) unused: u64,
    /// A request is worked on, or a reply is on its way.
    pub(crate) is_busy: bool,
}

/// The connection that ends for one of a newcomer. `None`: the newcomer gets none.
pub(crate) fn victim(places: &[Place], newcomer: Client) -> Option<usize> {
    let mut counts = HashMap::<Client, usize>::new();
    for place in places {
        *counts.entry(place.client).or_default() += 1;
    }
    let own = counts.get(&newcomer).copied().unwrap_or(0);
    let most = counts.values().copied().max().unwrap_or(0);
    let is_idle = |place: &&Place| {
        !place.is_busy && u128::from(place.unused) >= limits::MAKES_ROOM.as_millis()
    };
    // The one that is of least use: not busy, then unused for the longest.
    let worst = |place: &&Place| (!place.is_busy, place.unused);
    let all = || places.iter();
    let idle = all().filter(is_idle).max_by_key(worst);
    // Not for a client that would have as many then: they would take turns.
    let of_the_largest =
        || all().filter(|place| own + 1 < most && counts[&place.client] == most).max_by_key(worst);
    idle.or_else(of_the_largest).map(|place| place.number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(address: u8) -> Client {
        Client::of([10, 0, 0, address].into())
    }

    /// Connections of these clients, used one after the other, the first first.
    fn used(addresses: &[u8]) -> Vec<Place> {
        let place = |(number, address): (usize, &u8)| Place {
            number,
            client: client(*address),
            unused: 1000 - number as u64,
            is_busy: false,
        };
        addresses.iter().enumerate().map(place).collect()
    }

    #[test]
    fn the_client_with_the_most_loses_one() {
        assert_eq!(victim(&used(&[2, 1, 1, 1]), client(3)), Some(1));
        assert_eq!(victim(&used(&[2, 1, 1, 1]), client(2)), Some(1));
        // As many as the other has, or one less.
        assert_eq!(victim(&used(&[2, 1, 1, 1]), client(1)), None);
        assert_eq!(victim(&used(&[2, 1, 1]), client(2)), None);
        assert_eq!(victim(&used(&[1]), client(2)), None);
        assert_eq!(victim(&[], client(2)), None);
    }

    #[test]
    fn a_busy_connection_is_the_last_choice() {
        let mut places = used(&[1, 1, 1]);
        places[0].is_busy = true;
        assert_eq!(victim(&places, client(2)), Some(1));
        places.iter_mut().for_each(|place| place.is_busy = true);
        assert_eq!(victim(&places, client(2)), Some(0));
    }

    #[test]
    fn an_idle_connection_makes_room_for_any() {
        let mut places = used(&[1, 2, 2, 2]);
        places[0].unused = 30_000;
        assert_eq!(victim(&places, client(1)), Some(0));
        assert_eq!(victim(&places, client(3)), Some(0));
        places[0].is_busy = true;
        assert_eq!(victim(&places, client(1)), Some(1));
    }
}
