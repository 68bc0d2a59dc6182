//! Where the server is, and how to get in.

use std::time::Duration;

use mmq::forward::Trouble;
use redis::{
    Client, Connection, ConnectionAddr, ConnectionInfo, ConnectionLike, FromRedisValue,
    IntoConnectionInfo, Pipeline, RedisConnectionInfo, RedisError, RedisResult,
};

use crate::trouble::{again, lost, trouble};

/// A server, or the sentinels that know which one it is.
#[derive(Clone)]
pub(crate) struct Address {
    nodes: Vec<Node>,
    /// What the sentinels call the server. `None`: the only node is the server.
    primary: Option<String>,
    /// At the server, instead of that in the URL.
    pub(crate) login: Option<Login>,
    #[cfg(feature = "tls")]
    pub(crate) files: crate::tls::TlsFiles,
}

/// What a URL says.
#[derive(Clone)]
struct Node {
    /// Without the login and the database. (The client turns each error of a login into
    /// "authentication failed", so the session logs in itself, in one go with its question.)
    info: ConnectionInfo,
    login: Option<Login>,
    db: i64,
}

#[derive(Clone)]
pub(crate) struct Login {
    /// Empty: the server's default user.
    pub(crate) user: String,
    pub(crate) password: String,
}

impl Node {
    /// No error has the URL in it: that may have a password.
    fn parse(url: &str) -> Result<Node, String> {
        let has_tls = ["rediss://", "valkeys://"].iter().any(|scheme| url.starts_with(scheme));
        if has_tls && !cfg!(feature = "tls") {
            let why = "this program was built without TLS: mmq-redis has it with its feature `tls`";
            return Err(why.to_owned());
        }
        if has_tls && url.ends_with("#insecure") {
            let why = "#insecure would let anybody answer for the server: name the certificate of \
                       its authority instead";
            return Err(why.to_owned());
        }
        let info = url.into_connection_info().map_err(|error| {
            format!(
                "not a URL of Redis ({error}): it looks like redis://host:6379/0, \
                 rediss://host:6379/0 or unix:///run/redis.sock"
            )
        })?;
        let settings = info.redis_settings();
        let (db, user) = (settings.db(), settings.username().unwrap_or_default().to_owned());
        let login = settings.password().map(|it| Login { user, password: it.to_owned() });
        let bare = RedisConnectionInfo::default().set_skip_set_lib_name();
        Ok(Node { info: info.set_redis_settings(bare), login, db })
    }
}

impl Address {
    pub(crate) fn server(url: &str) -> Result<Address, String> {
        Ok(Address::new(vec![Node::parse(url)?], None))
    }

    pub(crate) fn sentinels(urls: &[&str], primary: &str) -> Result<Address, String> {
        if urls.is_empty() || primary.is_empty() {
            return Err("name at least one sentinel, and the primary that they know".to_owned());
        }
        let nodes = urls.iter().map(|url| Node::parse(url)).collect::<Result<_, _>>()?;
        Ok(Address::new(nodes, Some(primary.to_owned())))
    }

    fn new(nodes: Vec<Node>, primary: Option<String>) -> Address {
        Address {
            nodes,
            primary,
            login: None,
            #[cfg(feature = "tls")]
            files: crate::tls::TlsFiles::default(),
        }
    }

    /// Connects, and returns what to say first. The connection has `patience` for each answer.
    pub(crate) fn connect(&self, patience: Duration) -> Result<(Connection, Pipeline), Trouble> {
        let Some(primary) = &self.primary else {
            let Some(node) = self.nodes.first() else { return Err(lost("Redis", "no server")) };
            let login = self.login.as_ref().or(node.login.as_ref());
            return Ok((self.reach(&node.info, patience)?, greeting(login, node.db)));
        };
        let (mut all_answered, mut why) = (true, String::new());
        for node in &self.nodes {
            match self.ask(node, primary, patience) {
                Ok(Some((host, port))) => {
                    let info = node.info.clone().set_addr(elsewhere(node.info.addr(), host, port));
                    let connection = self.reach(&info, patience)?;
                    return Ok((connection, greeting(self.login.as_ref(), node.db)));
                }
                Ok(None) => {}
                Err(Trouble::Again(error, _) | Trouble::Lost(error)) => {
                    (all_answered, why) = (false, format!(" ({error})"));
                }
                Err(trouble) => return Err(trouble),
            }
        }
        let place = format!("{} sentinels of Redis", self.nodes.len());
        let text = format!("none knows where the primary {primary} is{why}");
        Err(if all_answered { lost(&place, text) } else { again(&place, text) })
    }

    /// Asks a sentinel where the primary is. `None`: it does not know the name.
    fn ask(
        &self,
        node: &Node,
        primary: &str,
        patience: Duration,
    ) -> Result<Option<(String, u16)>, Trouble> {
        let mut connection = self.reach(&node.info, patience)?;
        let mut calls = greeting(node.login.as_ref(), 0);
        calls.cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(primary);
        let mut ask = || {
            let packed = calls.get_packed_pipeline();
            let mut answers = connection.req_packed_commands(&packed, 0, calls.len())?;
            let answer = answers.pop().unwrap_or(redis::Value::Nil);
            for answer in answers {
                answer.extract_error()?;
            }
            Ok(Option::from_redis_value(answer.extract_error()?)?)
        };
        ask().map_err(|error| trouble(&place(&node.info), &error, patience))
    }

    fn reach(&self, info: &ConnectionInfo, patience: Duration) -> Result<Connection, Trouble> {
        let reach = || {
            let connection = self.client(info)?.get_connection_with_timeout(patience)?;
            connection.set_read_timeout(Some(patience))?;
            connection.set_write_timeout(Some(patience))?;
            Ok(connection)
        };
        reach().map_err(|error: RedisError| trouble(&place(info), &error, patience))
    }

    #[cfg(not(feature = "tls"))]
    #[expect(clippy::unused_self, reason = "with TLS it has the certificates")]
    fn client(&self, info: &ConnectionInfo) -> RedisResult<Client> {
        Client::open(info.clone())
    }

    #[cfg(feature = "tls")]
    fn client(&self, info: &ConnectionInfo) -> RedisResult<Client> {
        self.files.client(info)
    }
}

fn place(info: &ConnectionInfo) -> String {
    format!("Redis at {}", info.addr())
}

/// Another server, reached in the same way.
fn elsewhere(like: &ConnectionAddr, host: String, port: u16) -> ConnectionAddr {
    match like {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
            let (insecure, tls_params) = (*insecure, tls_params.clone());
            ConnectionAddr::TcpTls { host, port, insecure, tls_params }
        }
        _ => ConnectionAddr::Tcp(host, port),
    }
}

/// What comes before the first question.
fn greeting(login: Option<&Login>, db: i64) -> Pipeline {
    let mut calls = redis::pipe();
    if let Some(Login { user, password }) = login {
        calls.cmd("AUTH").arg((!user.is_empty()).then_some(user)).arg(password);
    }
    if db != 0 {
        calls.cmd("SELECT").arg(db);
    }
    calls
}
