use super::*;

#[test]
fn calls_end_at_relevant_events_only() {
    use EventType as T;
    let endings =
        |awaited| (0..20).map(T::from).filter(|seen| ends_call(*seen, awaited)).collect::<Vec<_>>();
    assert_eq!(endings(T::AddrResolved), [T::AddrResolved, T::AddrError, T::DeviceRemoval]);
    assert_eq!(endings(T::RouteResolved), [T::RouteResolved, T::RouteError, T::DeviceRemoval]);
    assert_eq!(
        endings(T::AddrinfoResolved),
        [T::DeviceRemoval, T::AddrinfoResolved, T::AddrinfoError]
    );
    assert_eq!(endings(T::MulticastJoin), [T::DeviceRemoval, T::MulticastJoin, T::MulticastError]);
    assert_eq!(
        endings(T::Disconnected),
        [T::ConnectError, T::Rejected, T::Disconnected, T::DeviceRemoval, T::TimewaitExit]
    );
    assert_eq!(endings(T::ConnectRequest), [T::ConnectRequest, T::DeviceRemoval]);
    assert_eq!(
        endings(T::Established),
        [
            T::ConnectResponse,
            T::ConnectError,
            T::Unreachable,
            T::Rejected,
            T::Established,
            T::Disconnected,
            T::DeviceRemoval
        ]
    );
}
