//! Tasks in modules, in functions, of every visibility.

mod mails {
    pub mod deep {
        #[dtq::task]
        pub async fn public(to: String) {
            drop(to);
        }

        #[dtq::task]
        pub(crate) async fn in_crate(to: String) {
            drop(to);
        }

        #[dtq::task]
        pub(in crate::mails) async fn in_mails(to: String) {
            drop(to);
        }

        #[dtq::task]
        pub(super) async fn in_parent(to: super::Private) {
            drop(to.0);
        }

        #[dtq::task(name = "private")]
        async fn private(to: String) {
            drop(to);
        }

        pub fn f() {
            let _ = Private::enqueue("a");
        }
    }

    #[derive(serde::Serialize, serde::Deserialize)]
    pub struct Private(pub(self) u8);

    pub fn f() {
        let _ = (deep::InParent::enqueue(Private(1)), deep::InMails::enqueue("a"));
    }
}

fn inside() {
    #[derive(serde::Serialize, serde::Deserialize)]
    struct Local(u8);

    #[dtq::task]
    async fn in_a_function(local: Local, #[serde(default)] more: u8) {
        let _ = (local.0, more);
    }
    let _ = InAFunction::enqueue(Local(1), 2);

    #[dtq::task]
    async fn also_in_a_function(local: Local) -> Local {
        local
    }
    let _ = AlsoInAFunction::enqueue(Local(1));
}

fn main() {
    let _ = (mails::deep::Public::enqueue("a"), mails::deep::InCrate::enqueue("a"));
    mails::f();
    mails::deep::f();
    inside();
    assert_eq!(dtq::registry().len(), 7);
}
